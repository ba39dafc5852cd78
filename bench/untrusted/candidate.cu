// In the place of a candidate: try_<layer> is linked with it, and ./ladder try puts the candidate's object there instead.
