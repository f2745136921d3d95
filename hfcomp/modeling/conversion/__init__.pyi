from hfcomp.modeling.conversion.convert import RECORD_FILE as RECORD_FILE
from hfcomp.modeling.conversion.convert import convert_checkpoint as convert_checkpoint
from hfcomp.modeling.conversion.export import export_llava as export_llava
from hfcomp.modeling.conversion.export import export_open_clip as export_open_clip
from hfcomp.modeling.conversion.options import ConversionOptions as ConversionOptions
