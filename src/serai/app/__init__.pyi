from serai.app.app import App as App
from serai.app.assembly import AppOptions as AppOptions
from serai.app.config import Config as Config
from serai.app.pipeline import CallDecision as CallDecision
from serai.app.pipeline import Pipeline as Pipeline
