"""What holds for every test: no property is judged by how long one of its examples took."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported

settings.register_profile("metronome", deadline=None)
settings.load_profile("metronome")
