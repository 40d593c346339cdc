"""Look inside: attention maps that are true for every kind of attention, and what follows from them."""

from vitlab.look.heat import heat
from vitlab.look.inside import Inside, Seen, inside
from vitlab.look.positions import Places, places
from vitlab.look.shown import Look, Shown, look
from vitlab.look.trust import Trust, trust

__all__ = ["Inside", "Look", "Places", "Seen", "Shown", "Trust", "heat", "inside", "look", "places", "trust"]
