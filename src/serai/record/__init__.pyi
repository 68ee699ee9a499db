from serai.record.recorder import Recorder as Recorder
from serai.record.recorder import WireTap as WireTap
from serai.record.recording import Recording as Recording
from serai.record.recording import TimelineFilter as TimelineFilter
from serai.record.recording import export_recording as export_recording
from serai.record.recording import replay as replay
from serai.record.recording_folder import RecordingFolder as RecordingFolder
from serai.record.secrets import Secrets as Secrets
