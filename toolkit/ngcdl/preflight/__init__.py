"""Whether an image can run on a host. Facts about both go in, a verdict with its reasons comes out. Pure: asks nobody.

facts       the values: ImageFacts, HostFacts, Verdict
image       turns a config blob, or a row of the catalogue, into ImageFacts; configuration: parses the blob's strings
host        turns what is typed after --host into HostFacts
kernels     can a card run the kernels compiled into the image?
loading     does the driver support the image's CUDA?
require     NVIDIA_REQUIRE_*
card        applies kernels, loading and require to one card
verdict     judge_host(ImageFacts, HostFacts) -> Verdict
newest      the newest tag of a framework that runs on a host
"""
