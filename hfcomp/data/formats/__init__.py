"""Ways in which images and captions lie on disk: COCO, folders of images, files of captions, tar archives."""
