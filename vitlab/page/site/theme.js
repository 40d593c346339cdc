// @ts-check
// Dark or light: as the system has it, until the switch says otherwise, which is remembered.

const NAME = "vitlab-theme";

/** What was chosen before; a browser may keep nothing. */
function remembered() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

/** @param {string} theme */
function remember(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch { /* then it holds for this visit */ }
}

/** @param {HTMLElement} button */
export function themeSwitch(button) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)"), before = remembered();
  if (before) root.dataset.theme = before;
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const label = () => button.setAttribute("aria-label", `Switch to ${now() === "dark" ? "light" : "dark"}`);
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    remember(root.dataset.theme);
    label();
    document.dispatchEvent(new Event("theme"));
  });
  dark.addEventListener("change", label);
  label();
}
