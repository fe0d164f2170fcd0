"""Called by interchange.sh: `copy MODEL FROM TO` reads a file with the safetensors package, checks the names and
shapes of the model and that they agree with the bytes of the file, and writes the tensors to another file."""
import json
import sys

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

EXPECTED = {
    "lenet": {"conv1.weight": (6, 1, 5, 5), "conv2.bias": (16,), "fc1.weight": (120, 256), "fc3.weight": (10, 84)},
    "resnet18": {
        "conv1.weight": (64, 1, 7, 7), "bn1.running_var": (64,), "bn1.num_batches_tracked": (),
        "layer1.0.conv1.weight": (64, 64, 3, 3), "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.num_batches_tracked": (), "layer4.1.bn2.weight": (512,), "fc.weight": (10, 512),
    },
}
COUNT = {"lenet": 10, "resnet18": 122}


def main():
    _, model, source, destination = sys.argv[1:]
    tensors = load_file(source)
    assert len(tensors) == COUNT[model], f"{len(tensors)} tensors"
    for name, shape in EXPECTED[model].items():
        assert tensors[name].shape == shape, f"{name}: {tensors[name].shape}"
    for name, x in tensors.items():
        tracked = name.endswith("num_batches_tracked")
        assert x.dtype == (numpy.int64 if tracked else numpy.float32), f"{name}: {x.dtype}"
        assert not tracked or x == 1, f"{name}: {x}"
        assert numpy.isfinite(x).all(), name
    with safe_open(source, "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt" and metadata["model"] == model, metadata
    assert json.loads(metadata["classes"]) == [str(digit) for digit in range(10)], metadata
    save_file(tensors, destination, metadata)
    read = []
    for path in (source, destination):
        data = open(path, "rb").read()
        size = int.from_bytes(data[:8], "little")
        read.append((json.loads(data[8:8 + size]), data[8 + size:]))
    assert read[0] == read[1], "the files differ"


main()
