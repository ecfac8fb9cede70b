"""metronome: how many live speech sessions can this model on this machine hold?"""

__version__ = "0.1.0"
