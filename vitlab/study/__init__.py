"""Which settings? A study trains every point of a grid, or searches, on one machine or many, and recommends one."""
