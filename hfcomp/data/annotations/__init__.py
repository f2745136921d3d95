"""Storage of annotators' decisions about images that are repainted inside a mask, and checks of such images."""
