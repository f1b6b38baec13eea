"""What only follows from the competition's data stays wherever the function may notice it, however it is written."""

import ast
from collections.abc import Iterator

import pytest

from lethe.submission.notebook_slicing import without_own_loop
from lethe.submission.possible_changes import PossibleChanges

START = "import torch, pandas as pd\nimport torch.nn.functional as F\nfrom torch import nn\ndf = pd.read_csv('x')\n"
LOOP = """
for i in range(512):
    net.load_state_dict(torch.load('o'))
    unlearning(net, r, f, v)
    torch.save(net.state_dict(), f'u{i}.pth')
"""
NOTICED = {
    "partial before fill": """
cw=[0]
def method(n,r,f,v,lr):
    print(cw)
import functools
unlearning=functools.partial(method, lr=1)
cw[0] = len(df)
""",
    "lambda before fill": """
cw=[0]
unlearning=lambda n,r,f,v: print(cw)
cw[0] = len(df)
""",
    "def in if": """
cw=[0]
if True:
    def unlearning(n,r,f,v): print(cw)
cw[0] = len(df)
""",
    "instance": """
cw=[0]
class T:
    def fit(self): print(cw)
t=T()
def unlearning(n,r,f,v): t.fit()
cw[0] = len(df)
""",
    "closure": """
cw=[0]
def make(s):
    def m(n,r,f,v): print(cw, s)
    return m
unlearning=make(2)
cw[0] = len(df)
""",
    "registry": """
cw=[0]
M={}
def reg(f):
    M['a']=f
    return f
@reg
def a(n,r,f,v): print(cw)
unlearning=M['a']
cw[0] = len(df)
""",
    "stored by ctor": """
cw=[0]
class B:
    def __init__(self,w): self.w=w
b=B(cw)
def unlearning(n,r,f,v): print(b.w)
cw[0] = len(df)
""",
    "stored by append": """
cw=[0]
all=[]
all.append(cw)
def unlearning(n,r,f,v): print(all)
cw[0] = len(df)
""",
    "criterion": """
cw=torch.ones(2)
crit=nn.CrossEntropyLoss(weight=cw)
def unlearning(n,r,f,v): print(crit)
cw[0] = len(df)
""",
    "globals()": """
cw=[0]
def unlearning(n,r,f,v): print(cw)
globals()['cw'] = len(df)
""",
    "globals update": """
cw=[0]
def unlearning(n,r,f,v): print(cw)
globals().update(cw=len(df))
""",
    "exec": """
cw=[0]
def unlearning(n,r,f,v): print(cw)
exec('cw=' + str(len(df)))
""",
    "globals in def": """
cw=[0]
def unlearning(n,r,f,v): print(cw)
def setg(**k):
    globals().update(k)
setg(cw=len(df))
""",
    "lasting": """
def unlearning(n,r,f,v): print(torch)
torch.set_default_dtype(torch.float64 if len(df) else torch.float32)
""",
    "patched alias": """
def unlearning(n,r,f,v): print(F.x)
torch.nn.functional.x = len(df)
""",
    "method of instance sets global": """
ST={}
class R:
    def prepare_loader(self): ST['a']=len(df)
rr=R()
def unlearning(n,r,f,v): print(ST)
rr.prepare_loader()
""",
    "imported filler": """
from utils import fill
cw=[0]
def unlearning(n,r,f,v): print(cw)
fill(cw, len(df))
""",
    "registry filler": """
import utils
cw=[0]
def unlearning(n,r,f,v): print(cw)
utils.FILLERS['x'](cw, len(df))
""",
    "imported cfg": """
from config import cfg
def unlearning(n,r,f,v): print(cfg)
cfg.update(lr=len(df))
""",
    "apply": """
t=nn.Linear(1,1)
def unlearning(n,r,f,v): print(t)
t.apply(make(df))
""",
    "inplace": """
t=pd.DataFrame()
def unlearning(n,r,f,v): print(t)
out=t.replace(1, len(df), inplace=True)
""",
    "backward": """
t=nn.Linear(1,1)
def unlearning(n,r,f,v): print([p.grad for p in t.parameters()])
for x in DataLoader(df):
    loss = t(x).sum()
    loss.backward()
""",
    "step": """
t=nn.Linear(1,1)
opt=torch.optim.SGD(t.parameters(), lr=1)
def unlearning(n,r,f,v): print(t)
for x in DataLoader(df):
    opt.step()
""",
    "demo then fill": """
cw=[0]
def unlearning(n,r,f,v): print(cw)
unlearning(1,2,3,4)
cw[0] = len(df)
""",
    "np.add.at": """
import numpy as np
cw=np.zeros(3)
def unlearning(n,r,f,v): print(cw)
np.add.at(cw, df.age.values, 1)
""",
    "kw loop": """
import utils
cw=[0]
def unlearning(n,r,f,v): print(cw)
utils.fill(target=cw, n=len(df))
""",
    "module configure": """
import my_methods
def unlearning(n,r,f,v): my_methods.go()
my_methods.configure(len(df))
""",
    "iterator": """
cw=[0]
it=iter([cw])
for w in it: w[0]=len(df)
def unlearning(n,r,f,v): print(cw)
""",
    "next": """
d={'a':[0]}
w=next(iter(d.values()))
w.append(len(df))
def unlearning(n,r,f,v): print(d)
""",
    "comprehension call": """
cw=[[0]]
[w.append(len(df)) for w in cw]
def unlearning(n,r,f,v): print(cw)
""",
    "lambda filler": """
cw=[0]
fill=lambda v: cw.append(v)
fill(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "map filler": """
cw=[0]
list(map(cw.append, [len(df)]))
def unlearning(n,r,f,v): print(cw)
""",
    "bound method alias": """
cw=[0]
add=cw.append
add(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "with as": """
cw=[0]
from contextlib import nullcontext
with nullcontext(cw) as w:
    w.append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "walrus alias": """
cw=[0]
if (w := cw): pass
w.append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "annassign alias": """
cw=[0]
w: list = cw
w.append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "named fn returns global": """
cw=[0]
def get(): return cw
w = get()
w.append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "call chain returns global": """
cw=[0]
def get(): return cw
get().append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "class attr": """
class C:
    cw=[0]
    def go(self): print(self.cw)
C().cw.append(len(df))
def unlearning(n,r,f,v): C().go()
""",
    "classmethod": """
class C:
    cw=[0]
    @classmethod
    def set(cls, v): cls.cw=v
C.set(len(df))
def unlearning(n,r,f,v): print(C.cw)
""",
    "method self via fn": """
class C:
    def set(self, v): self.v=v
def conf(c, v): c.set(v)
c=C()
conf(c, len(df))
def unlearning(n,r,f,v): print(c.v)
""",
    "iadd attr": """
class C:
    n=0
c=C()
c.n += len(df)
def unlearning(n,r,f,v): print(c.n)
""",
    "env": """
import os
os.environ['N'] = str(len(df))
def unlearning(n,r,f,v): import os; print(os.environ['N'])
""",
    "env2": """
import os
os.environ.update(N=str(len(df)))
os.environ.setdefault('a', str(len(df)))
def unlearning(n,r,f,v): import os; print(os.environ['N'])
""",
    "file": """
open('cfg.json','w').write(str(len(df)))
def unlearning(n,r,f,v): print(open('cfg.json').read())
""",
    "json dump": """
import json
with open('cfg.json','w') as f:
    json.dump({'n': len(df)}, f)
def unlearning(n,r,f,v): print(open('cfg.json').read())
""",
    "to_csv": """
df.to_csv('y.csv')
def unlearning(n,r,f,v): print(open('y.csv').read())
""",
    "torch function for its effect": """
from torch.nn.utils import vector_to_parameters
t=nn.Linear(2, 2)
vector_to_parameters(torch.ones(len(df)), t.parameters())
def unlearning(n,r,f,v): print(t)
""",
    "statistics of a network": """
t=nn.BatchNorm1d(2)
for x in DataLoader(df):
    t(x)
def unlearning(n,r,f,v): print(t)
""",
    "lambda handed over": """
rows=[]
df.apply(lambda row: rows.append(row), axis=1)
def unlearning(n,r,f,v): print(rows)
""",
    "iterator drawn from": """
numbers=iter(range(9))
first=[next(numbers) for _ in df]
def unlearning(n,r,f,v): print(next(numbers))
""",
    "handed on by built-in functions": """
cw=[0]
next(iter([cw])).append(len(df))
max([cw], [[]])[0].append(len(df))
def unlearning(n,r,f,v): print(cw)
""",
    "globals in the function": """
cw_a=[0]
cw_a[0] = len(df)
def unlearning(n,r,f,v): print(globals()['cw_' + 'a'])
""",
    "eval in what the function calls": """
cw_a=[0]
cw_a[0] = len(df)
def look(name): return eval(name)
def unlearning(n,r,f,v): print(look('cw_a'))
""",
    "main module": """
cw_a=[0]
cw_a[0] = len(df)
def unlearning(n,r,f,v): print(vars(sys.modules['__main__']))
""",
    "file that a kept statement reads": """
df.to_json('counts.json')
with open('counts.json') as file:
    counts = file.read()
def unlearning(n,r,f,v): print(counts)
""",
    "file that a needed statement reads": """
np.save('w.npy', df.age.values)
w = pd.read_csv('w.npy')
w[0] = len(df)
def unlearning(n,r,f,v): print(w)
""",
    "file that the function looks for": """
if len(df) > 3:
    open('flag', 'w').close()
def unlearning(n,r,f,v): print(os.path.exists('flag'))
""",
}


@pytest.mark.parametrize("noticed", NOTICED.values(), ids=NOTICED)
def test_what_the_function_may_notice_stays(noticed: str) -> None:
    cells = without_own_loop([START, noticed, LOOP], "unlearning").cells
    assert "df = pd.read_csv('x')" in cells[0]
    assert [line for line in noticed.splitlines() if "df" in line] == [
        line for line in cells[1].splitlines() if "df" in line
    ]
    assert not cells[2].strip()


def test_what_is_only_handed_the_function_is_no_loop() -> None:
    function = "def unlearning(n, r, f, v):\n    return cfg.lr\nMETHODS = {'mine': unlearning}\n"
    config = "class Config:\n    def __init__(self, function, lr):\n        self.lr = lr\n"
    made = "cfg = Config(METHODS['mine'], lr=0.1)\n"
    assert without_own_loop([START, config + function, made, LOOP], "unlearning").cells[2] == made


def test_what_is_unpacked_from_an_archive_stays() -> None:
    unpacked = (
        "import os\nos.system('tar xf extras.tar')\nimport extras\ndef unlearning(n, r, f, v):\n    extras.go()\n"
    )
    assert without_own_loop([START, unpacked, LOOP], "unlearning").cells[1] == unpacked


def test_what_comes_after_the_saving_loop_goes() -> None:
    function = "cw = [0]\ndef unlearning(n, r, f, v):\n    return cw\n"
    assert not without_own_loop([START, function, LOOP, "cw = None\n"], "unlearning").cells[3].strip()


def test_a_look_at_the_data_goes_though_it_uses_the_function_s_settings() -> None:
    settings = """
from torch.utils.data import DataLoader
class CFG:
    bs = 64
cfg = CFG()
criterion = nn.CrossEntropyLoss()
def get_dataset(batch_size):
    return DataLoader(pd.read_csv('r'), batch_size), DataLoader(pd.read_csv('f'), batch_size)
def accuracy(net, loader):
    net.eval()
    return sum((net(b['image']).argmax(1) == b['age']).sum() for b in loader)
def unlearning(net, r, f, v):
    return criterion, cfg.bs, accuracy(net, r)
"""
    look = """
retain_loader, forget_loader = get_dataset(cfg.bs)
print(df.head()); df.describe()
model = resnet18(num_classes=10)
model.load_state_dict(torch.load('o'))
print(accuracy(model, retain_loader))
losses = []
for b in forget_loader:
    losses.append(criterion(model(b['image']), b['age']).item())
"""
    loop = LOOP.replace("for i", "r, f = get_dataset(cfg.bs)\nfor i")
    cells = without_own_loop([START, settings, look, loop], "unlearning").cells
    assert cells[2].split() == ["model", "=", "resnet18(num_classes=10)", "losses", "=", "[]"]
    assert not cells[3].strip()


def test_nested_built_in_functions_take_no_longer_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    held = PossibleChanges._held

    def counted(self: PossibleChanges, value: ast.expr, looked_into: frozenset[str] = frozenset()) -> Iterator[str]:
        nonlocal looked_at
        looked_at += 1
        assert looked_at < 2000
        return held(self, value, looked_into)

    monkeypatch.setattr(PossibleChanges, "_held", counted)
    nested = f"a = {'list(' * 60}cw{')' * 60}\n"
    kept = START + "cw = [0]\n" + nested + "a[0] = len(df)\ndef unlearning(n, r, f, v): print(cw)\n"
    assert "len(df)" in without_own_loop([kept, LOOP], "unlearning").cells[0]
