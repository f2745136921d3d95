"""On-disk formats for images and captions: COCO, image folders, caption files and tar archives."""
