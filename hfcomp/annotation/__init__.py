"""Visual challenge sets made by people: an image, a mask, what is painted there, and the caption that is then true."""
