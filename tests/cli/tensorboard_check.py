"""tensorboard_check.py DIR [CUTS]: what TensorBoard's own reader finds in an event file of `yoke train --tensorboard`, also
when the file is cut at CUTS places."""
import glob
import os
import random
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import plugin_data_pb2

[path] = glob.glob(sys.argv[1] + "/events.out.tfevents.*")
reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})
reader.Reload()
tags = reader.Tags()
losses = reader.Scalars("loss/train")
assert [event.step for event in losses] == list(range(1, len(losses) + 1)) and len(losses) == 8, losses
assert all(0 < event.value < 20 for event in losses)
assert len(reader.Scalars("accuracy/test")) == 1 and 0 <= reader.Scalars("accuracy/test")[0].value <= 1
assert reader.Scalars("rate")[0].value > 0 and reader.Scalars("images per second")[0].value > 0
[weights] = reader.Histograms("conv1.weight")
value = weights.histogram_value
assert value.num == 150 and sum(value.bucket) == 150 and value.min < 0 < value.max, value
assert len(value.bucket) == len(value.bucket_limit) and list(value.bucket_limit) == sorted(value.bucket_limit)
names = {node.name: node for node in reader.Graph().node}
assert {"input", "output", "LeNet/conv1", "LeNet/fc3"} <= set(names), names
reached = {"output"}  # against the arrows, everything
while True:
    more = {name for reader_of in reached for name in names[reader_of].input} - reached
    if not more:
        break
    reached |= more
assert reached == set(names) and all(node.input for node in names.values() if node.name != "input"), names
hparams = [reader.SummaryMetadata(tag) for tag in ("_hparams_/experiment", "_hparams_/session_start_info")]
data = [plugin_data_pb2.HParamsPluginData.FromString(found.plugin_data.content) for found in hparams]
assert {info.name for info in data[0].experiment.hparam_infos} == set(data[1].session_start_info.hparams)
assert {"lr", "seed"} <= set(data[1].session_start_info.hparams), data[1]

with open(path, "rb") as source:
    whole = source.read()
events = len(list(LegacyEventFileLoader(path).Load()))
ends, at = [], 0  # of the records: a length, its checksum, the event, its checksum
while at < len(whole):
    at += 16 + int.from_bytes(whole[at : at + 8], "little")
    ends.append(at)
assert at == len(whole) and events == len(ends), (at, events, len(ends))
random.seed(1)
with tempfile.TemporaryDirectory() as folder:
    cuts = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    for size in random.sample(range(len(whole)), min(cuts, len(whole))):
        cut = os.path.join(folder, "events.out.tfevents.1.cut")
        with open(cut, "wb") as to:
            to.write(whole[:size])
        count = len(list(LegacyEventFileLoader(cut).Load()))
        assert count == sum(end <= size for end in ends), (size, count)
print(events)
