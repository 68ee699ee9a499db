from serai.tools.builtin import BuiltIn as BuiltIn
from serai.tools.undo import Undo as Undo
