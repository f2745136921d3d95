from hfcomp.data.overlap.guard import COLUMNS as COLUMNS
from hfcomp.data.overlap.guard import FIX as FIX
from hfcomp.data.overlap.guard import Overlap as Overlap
from hfcomp.data.overlap.guard import ScoredImages as ScoredImages
from hfcomp.data.overlap.guard import find_overlap as find_overlap
from hfcomp.data.overlap.guard import known_names as known_names
from hfcomp.data.overlap.guard import without_known_images as without_known_images
from hfcomp.data.overlap.guard import without_overlap as without_overlap
