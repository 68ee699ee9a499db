from serai.app.app import App as App
from serai.app.config import Config as Config
from serai.app.opening import Choices as Choices
from serai.app.pipeline import Decided as Decided
from serai.app.pipeline import Pipeline as Pipeline
