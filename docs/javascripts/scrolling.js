// What can be scrolled can be reached by keyboard
const scrolled = "pre > code, .md-typeset__scrollwrap, .output, div.formula";
const reach = () =>
  document.querySelectorAll(scrolled).forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  });
addEventListener("load", reach);
addEventListener("resize", reach);
