// @ts-check
// Dark or light: as the system has it, until the switch says otherwise.

/** @param {HTMLElement} button */
export function themeSwitch(button) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const label = () => button.setAttribute("aria-label", `Switch to ${now() === "dark" ? "light" : "dark"}`);
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    label();
    document.dispatchEvent(new Event("theme"));
  });
  dark.addEventListener("change", label);
  label();
}
