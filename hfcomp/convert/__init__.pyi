from hfcomp.convert.convert import RECORD_FILE as RECORD_FILE
from hfcomp.convert.convert import convert_checkpoint as convert_checkpoint
from hfcomp.convert.export import export_llava as export_llava
from hfcomp.convert.export import export_open_clip as export_open_clip
from hfcomp.convert.join import join_towers as join_towers
from hfcomp.convert.onnx_export import export_onnx as export_onnx
from hfcomp.convert.options import ConversionOptions as ConversionOptions
from hfcomp.convert.positions import stretch_positions as stretch_positions
