"""Found by the Python that a keeper becomes, when a test puts this folder on its path: that one is doomed, too."""

import os

if "SERAI_DOOM" in os.environ:
    from tests.boxes.doomed import doom

    doom(int(os.environ["SERAI_DOOM"]))
