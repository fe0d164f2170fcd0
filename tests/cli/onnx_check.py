"""The ONNX files of a folder: onnx.checker takes each, and onnxruntime computes what stands beside it."""
import glob
import os
import sys

import numpy
import onnx
import onnxruntime

folder = sys.argv[1]
models = sorted(glob.glob(os.path.join(folder, "*.onnx")))
bad = 0
onnxruntime.set_default_logger_severity(3)
for path in models:
    name = os.path.basename(path)[:-5]
    try:
        onnx.checker.check_model(path, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for batch in (1, 4):
            feeds = {
                given.name: numpy.load(f"{folder}/{name}.input{i}.{batch}.npy")
                for i, given in enumerate(session.get_inputs())
            }
            for i, result in enumerate(session.run(None, feeds)):
                expected = numpy.load(f"{folder}/{name}.output{i}.{batch}.npy")
                assert result.shape == expected.shape and result.dtype == expected.dtype, (result.shape, expected.shape)
                error = numpy.abs(result - expected).max() / max(1, numpy.abs(expected).max())
                assert error < 1e-5, f"output {i} of a batch of {batch} is {error:.1e} off"
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:600]}")
        bad += 1
print(f"{len(models)} models")
sys.exit(bool(bad) or len(models) < int(sys.argv[2]))
