"""The page of `hfcomp annotate`, in Gradio. Its modules import Gradio: import them where the page is wanted."""
