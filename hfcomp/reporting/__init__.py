"""Reports as plain data, their renderers for terminal, Markdown and HTML, and a module that draws figures."""
