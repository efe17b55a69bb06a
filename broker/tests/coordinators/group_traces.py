"""The first lines of many traces."""

STATIC_ALONE = """
    >> join a static A v3
    << a joined 1 as a-1, leads of a-1, range
    >> sync a-1 gen 1 a-1=P0
    << store generation 1: a-1=P0
    >> stored
    << a-1 assigned P0
"""

TWO_STABLE = """
    >> join a v3
    << a joined 1 as a-1, leads of a-1, range
    >> join b v3
    >> heartbeat a-1 gen 1
    << REBALANCE_IN_PROGRESS
    >> join a as a-1
    << a joined 2 as a-1, leads of a-1 b-2, range
    << b joined 2 as b-2, follows a-1, range
    >> sync b-2 gen 2
    >> sync a-1 gen 2 a-1=P0 b-2=P1
    << store generation 2: a-1=P0 b-2=P1
    >> stored
    << a-1 assigned P0
    << b-2 assigned P1
"""
