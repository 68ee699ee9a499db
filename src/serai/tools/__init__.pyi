from serai.tools.builtin_tools import BuiltInTools as BuiltInTools
from serai.tools.workspace import FileSnapshots as FileSnapshots
