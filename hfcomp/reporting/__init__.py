"""Reports as plain data, and their renderers: terminal, Markdown, JSON; one module draws figures."""
