"""Reports as plain data, and their renderers: terminal and Markdown; one module draws figures."""
