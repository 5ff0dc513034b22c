import sys
sys.path.insert(0,'/tmp/w/mig/tests/bench'); sys.path.insert(0,'/tmp/w/mig/tests/integration'); sys.path.insert(0,'/tmp/w/mig/tests/replicas')
import types
m=types.ModuleType('postgres'); m.Cluster=None; sys.modules['postgres']=m
import bench_store_costs as b, tempfile
with tempfile.TemporaryDirectory() as f:
    b.measure("SQLite", b.SqliteSide(f), 30, 1000, 2)
    b.measure("SQLite", b.SqliteSide(f), 100000, 100, 2)
