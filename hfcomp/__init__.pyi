__version__: str

from hfcomp.data import CompositionalCollator as CompositionalCollator
from hfcomp.evaluation import Embedder as Embedder
from hfcomp.evaluation import EvaluateBenchmarks as EvaluateBenchmarks
from hfcomp.evaluation.compare import compare as compare
from hfcomp.evaluation.evaluate import evaluate as evaluate
from hfcomp.evaluation.evaluation_results import EvaluationResults as EvaluationResults
from hfcomp.losses import *
from hfcomp.modeling import DualEncoder as DualEncoder
from hfcomp.modeling import Features as Features
from hfcomp.modeling import merge_adapter as merge_adapter
from hfcomp.negatives import MaskFiller as MaskFiller
from hfcomp.negatives import hard_positives as hard_positives
from hfcomp.negatives import keyword_negatives as keyword_negatives
from hfcomp.negatives import nearest_neighbors as nearest_neighbors
from hfcomp.negatives import swap_negatives as swap_negatives
from hfcomp.parsing import load_parser as load_parser
from hfcomp.trainers import *
