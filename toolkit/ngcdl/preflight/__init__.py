"""Can this image run on this host: facts of both in, a verdict with its reasons out. Pure: nothing is asked here.

facts       the values: ImageFacts, HostFacts, Verdict
image       a config blob, or a row of the catalogue, becomes ImageFacts; configuration: what the blob's texts say
host        what is typed after --host becomes HostFacts
kernels     can a card run what was compiled into the image
loading     does the driver carry the image's CUDA
require     NVIDIA_REQUIRE_*
card        the three of them for one card
verdict     judge(ImageFacts, HostFacts) -> Verdict
newest      the newest tag of a framework that runs on a host
"""
