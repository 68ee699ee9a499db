from serai.record.exporting import export as export
from serai.record.folder import Folder as Folder
from serai.record.recorder import Recorder as Recorder
from serai.record.recorder import WireTap as WireTap
from serai.record.recording import Filter as Filter
from serai.record.recording import Recording as Recording
from serai.record.replaying import replay as replay
from serai.record.secrets import Secrets as Secrets
