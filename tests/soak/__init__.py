"""Long runs against real processes: editors that type, engines that are killed, connections that come and go.

`python -m soak --help`, in the folder of the tests; the slow tests run the same, shortened.
"""
