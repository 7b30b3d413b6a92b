"""A table of hosts and images with the expected verdicts: what NVIDIA documents, by card and oldest driver.

The rows were worked out by hand from the documents the catalogue names, not from the code.
"""

from __future__ import annotations

import pytest

from ngcdl.catalog import releases
from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts
from ngcdl.preflight.image import from_catalog
from ngcdl.preflight.newest import newest
from ngcdl.preflight.verdict import judge_host
from ngcdl.spec import ImageRef

# card, capability, brand, driver, architecture, image -> verdict, mode, the deciding rule
TABLE = """
# the card that ngcdl was begun on
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:18.01-py2          | runs    | native  | native
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:18.08-py2          | runs    | native  | native
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:18.09-py2          | no      | -       | driver
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:25.02-tf2-py3      | no      | -       | capability
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | pytorch:26.07-py3             | no      | -       | capability

# four hosts, worked through: a new GeForce, a data-centre card, an old GeForce, arm64
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | tensorflow:18.01-py2          | no      | -       | cuda10
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | tensorflow:24.05-tf2-py3      | runs    | native  | native
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | pytorch:25.03-py3             | runs    | minor   | minor
T4           | 7.5  | tesla     | 470.57.02  | amd64 | tensorflow:18.01-py2          | caution | native  | capability
T4           | 7.5  | tesla     | 470.57.02  | amd64 | tensorflow:24.05-tf2-py3      | runs    | forward | forward
T4           | 7.5  | tesla     | 470.57.02  | amd64 | pytorch:25.03-py3             | runs    | forward | forward
GTX 1080     | 6.1  | geforce   | 470.82.01  | amd64 | tensorflow:18.01-py2          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 470.82.01  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 470.82.01  | amd64 | pytorch:25.03-py3             | no      | -       | capability
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | tensorflow:18.01-py2          | no      | -       | architecture
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | tensorflow:24.05-tf2-py3      | runs    | native  | native
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | pytorch:25.03-py3             | runs    | forward | forward

# Kepler: older than every image
K80          | 3.7  | tesla     | 470.82.01  | amd64 | tensorflow:17.05              | no      | -       | capability
K80          | 3.7  | tesla     | 470.82.01  | amd64 | tensorflow:18.01-py2          | no      | -       | capability
K80          | 3.7  | tesla     | 470.82.01  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | capability
K40          | 3.5  | tesla     | 470.82.01  | amd64 | pytorch:20.06-py3             | no      | -       | capability
GTX 680      | 3.0  | geforce   | 390.12     | amd64 | tensorflow:18.01-py2          | no      | -       | capability

# Maxwell: 18.12 documents Pascal and newer, though kernels for 5.2 stay inside until 24.12
GTX 750 Ti   | 5.0  | geforce   | 390.12     | amd64 | tensorflow:18.01-py2          | no      | -       | capability
GTX 980      | 5.2  | geforce   | 384.81     | amd64 | tensorflow:18.08-py3          | runs    | native  | native
M60          | 5.2  | tesla     | 384.81     | amd64 | tensorflow:18.01-py2          | runs    | native  | native
M60          | 5.2  | tesla     | 410.48     | amd64 | tensorflow:18.09-py3          | runs    | native  | native
M60          | 5.2  | tesla     | 410.48     | amd64 | tensorflow:18.12-py3          | caution | native  | capability
M60          | 5.2  | tesla     | 550.54.15  | amd64 | tensorflow:24.05-tf2-py3      | caution | native  | capability
M60          | 5.2  | tesla     | 550.54.15  | amd64 | pytorch:24.05-py3             | caution | native  | capability
GTX 750 Ti   | 5.0  | geforce   | 550.54.15  | amd64 | pytorch:24.05-py3             | no      | -       | capability

# Pascal: until 24.12
P100         | 6.0  | tesla     | 384.81     | amd64 | tensorflow:18.01-py2          | runs    | native  | native
P100         | 6.0  | tesla     | 384.81     | amd64 | tensorflow:18.09-py3          | runs    | forward | forward
P100         | 6.0  | tesla     | 384.111    | amd64 | tensorflow:19.03-py3          | runs    | forward | forward
P100         | 6.0  | tesla     | 396.26     | amd64 | tensorflow:19.03-py3          | no      | -       | driver
P100         | 6.0  | tesla     | 396.26     | amd64 | tensorflow:19.09-py3          | runs    | forward | forward
P40          | 6.1  | tesla     | 410.48     | amd64 | tensorflow:18.12-py3          | runs    | native  | native
P40          | 6.1  | tesla     | 535.104.05 | amd64 | pytorch:24.12-py3             | runs    | forward | forward
P40          | 6.1  | tesla     | 580.65.06  | amd64 | pytorch:25.01-py3             | no      | -       | capability
GTX 1080     | 6.1  | geforce   | 384.81     | amd64 | tensorflow:18.09-py3          | no      | -       | driver
GTX 1080 Ti  | 6.1  | geforce   | 418.39     | amd64 | tensorflow:20.06-tf2-py3      | no      | -       | driver
GTX 1080 Ti  | 6.1  | geforce   | 560.35.05  | amd64 | tensorflow:24.12-tf2-py3      | runs    | native  | native

# Volta: until 24.12; where 460 is off the list, minor-version compatibility is left, within CUDA 11
V100         | 7.0  | tesla     | 384.81     | amd64 | tensorflow:18.01-py3          | runs    | native  | native
V100         | 7.0  | tesla     | 450.80.02  | amd64 | tensorflow:22.12-tf2-py3      | runs    | forward | forward
V100         | 7.0  | tesla     | 460.32.03  | amd64 | tensorflow:22.12-tf2-py3      | runs    | minor   | minor
V100         | 7.0  | tesla     | 450.80.02  | amd64 | tensorflow:23.01-tf2-py3      | runs    | forward | forward
V100         | 7.0  | tesla     | 460.32.03  | amd64 | tensorflow:23.01-tf2-py3      | no      | -       | driver
V100         | 7.0  | tesla     | 550.54.15  | amd64 | pytorch:24.12-py3             | runs    | forward | forward
V100         | 7.0  | tesla     | 525.85.12  | amd64 | pytorch:24.12-py3             | runs    | minor   | minor
V100         | 7.0  | tesla     | 570.124.06 | amd64 | pytorch:25.01-py3             | no      | -       | capability
TITAN V      | 7.0  | titan     | 450.80.02  | amd64 | tensorflow:22.12-tf2-py3      | runs    | minor   | minor
TITAN V      | 7.0  | titan     | 450.80.02  | amd64 | tensorflow:23.01-tf2-py3      | no      | -       | driver

# a driver too new for the card: 470 was the last for Kepler, 580 for Maxwell, Pascal and Volta
V100         | 7.0  | tesla     | 580.95.05  | amd64 | tensorflow:24.05-tf2-py3      | runs    | native  | native
V100         | 7.0  | tesla     | 590.48.01  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 580        | amd64 | pytorch:24.12-py3             | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 595.45.04  | amd64 | tensorflow:18.01-py2          | no      | -       | driver
P100         | 6.0  | tesla     | 595        | amd64 | pytorch:24.12-py3             | no      | -       | driver
GTX 980      | 5.2  | geforce   | 590.48.01  | amd64 | tensorflow:18.08-py3          | no      | -       | driver
T4           | 7.5  | tesla     | 590.48.01  | amd64 | tensorflow:24.05-tf2-py3      | runs    | native  | native

# Windows' drivers, which WSL2 shows: 472 to 475 are of branch 470, 581 and 582 of 580, 591 of 590
GTX 1070     | 6.1  | geforce   | 581.80     | amd64 | pytorch:24.12-py3             | runs    | native  | native
GTX 1070     | 6.1  | geforce   | 582.66     | amd64 | pytorch:24.12-py3             | runs    | native  | native
GTX 1070     | 6.1  | geforce   | 591.44     | amd64 | pytorch:24.12-py3             | no      | -       | driver
RTX 5090     | 12.0 | geforce   | 572.16     | amd64 | pytorch:25.01-py3             | runs    | native  | native
RTX 5090     | 12.0 | geforce   | 566.36     | amd64 | pytorch:25.01-py3             | no      | -       | driver

# a driver too old for the card: 520 was the first for Ada, 570 for Blackwell
RTX 4090     | 8.9  | geforce   | 470.82.01  | amd64 | pytorch:21.10-py3             | no      | -       | driver
RTX 4090     | 8.9  | geforce   | 520.61.05  | amd64 | pytorch:22.12-py3             | runs    | native  | native
RTX 5090     | 12.0 | geforce   | 550.54.15  | amd64 | pytorch:24.05-py3             | no      | -       | driver
B200         | 10.0 | nvidia    | 550.54.15  | amd64 | pytorch:25.03-py3             | no      | -       | driver
B300         | 10.3 | nvidia    | 570.195.03 | amd64 | pytorch:25.06-py3             | no      | -       | driver
B300         | 10.3 | nvidia    | 580.82.07  | amd64 | pytorch:25.06-py3             | runs    | native  | native
RTX 5090     | 12.0 | geforce   | -          | amd64 | pytorch:25.03-py3             | caution | -       | unknown

# Turing: GeForce, Quadro and data centre at one driver
RTX 2080 Ti  | 7.5  | geforce   | 535.104.05 | amd64 | pytorch:23.10-py3             | runs    | native  | native
RTX 2080 Ti  | 7.5  | geforce   | 470.57.02  | amd64 | pytorch:23.10-py3             | no      | -       | driver
RTX 8000     | 7.5  | quadrortx | 470.57.02  | amd64 | pytorch:23.10-py3             | runs    | forward | forward
T4           | 7.5  | tesla     | 470.57.02  | amd64 | pytorch:23.10-py3             | runs    | forward | forward
TITAN RTX    | 7.5  | titanrtx  | 470.57.02  | amd64 | pytorch:23.10-py3             | no      | -       | driver
RTX 2080     | 7.5  | geforce   | 410.48     | amd64 | tensorflow:18.08-py3          | caution | native  | capability
RTX 2080     | 7.5  | geforce   | 410.48     | amd64 | tensorflow:18.09-py3          | runs    | native  | native
RTX 2080     | 7.5  | geforce   | 410.48     | amd64 | pytorch:18.08-py3             | caution | native  | capability
T4           | 7.5  | tesla     | 535.104.05 | amd64 | tensorflow:17.05              | caution | ptx     | ptx
V100         | 7.0  | tesla     | 410.48     | amd64 | tensorflow:18.08-py3          | runs    | native  | native
T4           | 7.5  | -         | 470.57.02  | amd64 | pytorch:23.10-py3             | caution | -       | unknown
T4           | 7.5  | -         | 525.60.13  | amd64 | pytorch:23.10-py3             | runs    | minor   | minor

# Ampere: not with CUDA 10 and older
A100         | 8.0  | nvidia    | 450.51.06  | amd64 | pytorch:20.08-py3             | runs    | native  | native
A100         | 8.0  | nvidia    | 450.51.06  | amd64 | pytorch:20.03-py3             | no      | -       | cuda10
A100         | 8.0  | nvidia    | 450.80.02  | amd64 | pytorch:24.05-py3             | no      | -       | driver
A100         | 8.0  | nvidia    | 535.104.05 | amd64 | pytorch:24.05-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 535.104.05 | amd64 | pytorch:25.08-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 560.35.03  | amd64 | pytorch:25.08-py3             | no      | -       | driver
A100         | 8.0  | nvidia    | 550.54.15  | amd64 | pytorch:25.12-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 565.57     | amd64 | pytorch:25.12-py3             | no      | -       | driver
RTX A6000    | 8.6  | nvidiartx | 535.104.05 | amd64 | pytorch:25.12-py3             | runs    | forward | forward
RTX 3090     | 8.6  | geforce   | 535.104.05 | amd64 | pytorch:25.12-py3             | no      | -       | driver
RTX 3090     | 8.6  | geforce   | 455.23     | amd64 | pytorch:20.06-py3             | runs    | native  | native
RTX 3090     | 8.6  | geforce   | 455.23     | amd64 | tensorflow:19.10-py3          | no      | -       | cuda10

# CUDA 12.8, 13.2 and 13.3: the branches that NVIDIA_REQUIRE_CUDA of nvidia/cuda lets in
A100         | 8.0  | nvidia    | 470.57.02  | amd64 | pytorch:25.02-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 525.85.12  | amd64 | pytorch:25.02-py3             | runs    | minor   | minor
A100         | 8.0  | nvidia    | 520.61.05  | amd64 | pytorch:25.02-py3             | no      | -       | driver
RTX 3090     | 8.6  | geforce   | 470.57.02  | amd64 | pytorch:25.02-py3             | no      | -       | driver
A100         | 8.0  | nvidia    | 570.124.06 | amd64 | pytorch:26.05-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 565.57     | amd64 | pytorch:26.05-py3             | no      | -       | driver
A100         | 8.0  | nvidia    | 580.65.06  | amd64 | pytorch:26.05-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 595.45.04  | amd64 | pytorch:26.07-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 550.54.15  | amd64 | pytorch:26.07-py3             | no      | -       | driver
RTX 3090     | 8.6  | geforce   | 570.124.06 | amd64 | pytorch:26.05-py3             | no      | -       | driver

# CUDA 13.4: NVIDIA's page has a list
A100         | 8.0  | nvidia    | 535.104.05 | amd64 | pytorch:26.09-py3             | runs    | forward | forward
H100         | 9.0  | nvidia    | 570.124.06 | amd64 | pytorch:26.09-py3             | runs    | forward | forward
B200         | 10.0 | nvidia    | 570.133.20 | amd64 | pytorch:26.09-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 570.124.06 | amd64 | pytorch:26.08-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 550.54.15  | amd64 | pytorch:26.08-py3             | no      | -       | driver
A100         | 8.0  | nvidia    | 580.65.06  | amd64 | pytorch:26.08-py3             | runs    | forward | forward
L4           | 8.9  | nvidia    | 595.91.07  | amd64 | pytorch:26.09-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 610.43.02  | amd64 | pytorch:26.09-py3             | runs    | forward | forward
A100         | 8.0  | nvidia    | 615.65.02  | amd64 | pytorch:26.08-py3             | runs    | native  | native
RTX 3090     | 8.6  | geforce   | 570.124.06 | amd64 | pytorch:26.08-py3             | no      | -       | driver

# a branch by its number alone, as --host takes it
RTX 4090     | 8.9  | geforce   | 525        | amd64 | tensorflow:24.05-tf2-py3      | caution | -       | unknown
RTX 4090     | 8.9  | geforce   | 535        | amd64 | tensorflow:24.05-tf2-py3      | runs    | minor   | minor
T4           | 7.5  | tesla     | 470        | amd64 | tensorflow:24.05-tf2-py3      | caution | -       | unknown
RTX 4090     | 8.9  | geforce   | 520        | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver

# Ada
L4           | 8.9  | nvidia    | 525.85.12  | amd64 | tensorflow:23.01-tf2-py3      | runs    | native  | native
L40S         | 8.9  | nvidia    | 545.23.08  | amd64 | pytorch:24.10-py3             | runs    | minor   | minor
RTX 4090     | 8.9  | geforce   | 525.85.12  | amd64 | pytorch:20.12-py3             | runs    | native  | native

# Hopper: PTX in images before 22.09, and no driver before branch 520
H100         | 9.0  | nvidia    | 525.85.12  | amd64 | pytorch:22.08-py3             | caution | ptx     | ptx
H100         | 9.0  | nvidia    | 510.47.03  | amd64 | pytorch:22.08-py3             | no      | -       | driver
H100         | 9.0  | nvidia    | 535.104.05 | amd64 | pytorch:23.10-py3             | runs    | native  | native
H100         | 9.0  | nvidia    | 580.65.06  | amd64 | pytorch:26.07-py3             | runs    | forward | forward
H200         | 9.0  | nvidia    | 610.43.02  | amd64 | pytorch:26.07-py3             | runs    | native  | native

# Blackwell
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | tensorflow:18.01-py2          | no      | -       | cuda10
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | pytorch:24.12-py3             | caution | ptx     | ptx
RTX 5090     | 12.0 | geforce   | 550.54.15  | amd64 | pytorch:24.12-py3             | no      | -       | driver
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | pytorch:25.01-py3             | runs    | native  | native
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | pytorch:25.06-py3             | runs    | minor   | minor
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | pytorch:25.08-py3             | no      | -       | driver
B200         | 10.0 | nvidia    | 570.124.06 | amd64 | pytorch:24.12-py3             | caution | ptx     | ptx
B200         | 10.0 | nvidia    | 570.124.06 | amd64 | pytorch:25.03-py3             | runs    | native  | native
B300         | 10.3 | nvidia    | 580.95.05  | amd64 | pytorch:25.10-py3             | runs    | native  | native
GB200        | 10.0 | nvidia    | 570.124.06 | arm64 | pytorch:25.03-py3             | runs    | native  | native
GB10         | 12.1 | -         | 580.95.05  | arm64 | pytorch:25.10-py3             | runs    | native  | native
GB10         | 12.1 | nvidia    | 580.159.03 | arm64 | pytorch:25.12-py3             | runs    | forward | forward
GB10         | 12.1 | -         | 580.159.03 | arm64 | pytorch:25.12-py3             | runs    | forward | forward
GB10         | 12.1 | -         | 580.142    | arm64 | pytorch:26.04-py3             | runs    | forward | forward
GB10         | 12.1 | geforce   | 580.173.02 | arm64 | pytorch:26.08-py3             | runs    | forward | forward
GB10         | 12.1 | -         | 560.35.03  | arm64 | pytorch:26.01-py3             | no      | -       | driver
GB10         | 12.1 | -         | 580.95.05  | arm64 | tensorflow:20.03-tf2-py3      | no      | -       | architecture
Thor         | 11.0 | -         | 580.95.05  | arm64 | pytorch:25.08-py3             | runs    | native  | native
Thor         | 11.0 | -         | 580.00     | arm64 | pytorch:25.12-py3             | runs    | minor   | minor
Thor         | 11.0 | -         | 580.00     | arm64 | pytorch:26.07-py3             | runs    | minor   | minor
Thor         | 11.0 | -         | 580.95.05  | arm64 | pytorch:25.03-py3             | no      | -       | capability

# other processors, and Jetson, whose tags end in -igpu
A100         | 8.0  | nvidia    | 470.57.02  | arm64 | pytorch:21.10-py3             | runs    | native  | native
A100         | 8.0  | nvidia    | 470.57.02  | arm64 | pytorch:21.09-py3             | no      | -       | architecture
V100         | 7.0  | tesla     | 495.29.05  | arm64 | pytorch:21.12-py3             | runs    | native  | native
V100         | 7.0  | tesla     | 535.104.05 | arm64 | pytorch:22.09-py3             | no      | -       | capability
T4           | 7.5  | tesla     | 535.104.05 | arm64 | pytorch:23.10-py3             | no      | -       | capability
Orin         | 8.7  | -         | 540.4.0    | arm64 | tensorflow:24.05-tf2-py3-igpu | caution | -       | unknown
Orin         | 8.7  | -         | 540.4.0    | arm64 | tensorflow:24.05-tf2-py3      | no      | -       | igpu
Orin         | 8.7  | -         | 540.4.0    | arm64 | pytorch:25.06-py3             | no      | -       | igpu
Orin         | 8.7  | -         | 595.78     | arm64 | pytorch:25.10-py3             | caution | -       | unknown
Orin         | 8.7  | -         | -          | arm64 | pytorch:26.07-py3             | caution | -       | unknown
Xavier       | 7.2  | -         | -          | arm64 | pytorch:23.11-py3             | no      | -       | igpu
Xavier       | 7.2  | -         | -          | arm64 | pytorch:26.07-py3             | no      | -       | igpu
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | tensorflow:24.05-tf2-py3-igpu | no      | -       | igpu
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | tensorflow:24.05-tf2-py3-igpu | no      | -       | architecture

# at each floor, one patch below it (the same branch is native), and a branch below
GTX 1080     | 6.1  | geforce   | 375.26     | amd64 | tensorflow:17.05              | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 367.48     | amd64 | tensorflow:17.05              | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 384.81     | amd64 | tensorflow:18.01-py2          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 384.80     | amd64 | tensorflow:18.01-py2          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 381.22     | amd64 | tensorflow:18.01-py2          | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 410.48     | amd64 | tensorflow:18.09-py3          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 410.47     | amd64 | tensorflow:18.09-py3          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 396.37     | amd64 | tensorflow:18.09-py3          | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 418.38     | amd64 | tensorflow:19.03-py3          | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 415.27     | amd64 | tensorflow:19.03-py3          | no      | -       | driver
GTX 1080     | 6.1  | geforce   | 440.32     | amd64 | tensorflow:20.01-tf2-py3      | runs    | native  | native
GTX 1080     | 6.1  | geforce   | 435.21     | amd64 | tensorflow:20.01-tf2-py3      | no      | -       | driver
RTX 2060     | 7.5  | geforce   | 450.80.02  | amd64 | tensorflow:21.02-tf2-py3      | runs    | minor   | minor
RTX 2060     | 7.5  | geforce   | 450.80.01  | amd64 | tensorflow:21.02-tf2-py3      | no      | -       | driver
RTX 2060     | 7.5  | geforce   | 450.80.01  | amd64 | tensorflow:20.08-tf2-py3      | runs    | native  | native
RTX 2060     | 7.5  | geforce   | 525.60.13  | amd64 | tensorflow:24.05-tf2-py3      | runs    | minor   | minor
RTX 2060     | 7.5  | geforce   | 525.60.12  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
T4           | 7.5  | tesla     | 525.60.12  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
T4           | 7.5  | tesla     | 525.85.12  | amd64 | tensorflow:24.05-tf2-py3      | runs    | forward | forward
T4           | 7.5  | tesla     | 470.42.01  | amd64 | tensorflow:24.05-tf2-py3      | no      | -       | driver
T4           | 7.5  | tesla     | 575.57.08  | amd64 | pytorch:26.08-py3             | no      | -       | driver
T4           | 7.5  | tesla     | 580.00     | amd64 | pytorch:26.07-py3             | runs    | forward | forward
RTX 2060     | 7.5  | geforce   | 580        | amd64 | pytorch:26.07-py3             | runs    | minor   | minor
RTX 2060     | 7.5  | geforce   | 575.57.08  | amd64 | pytorch:26.07-py3             | no      | -       | driver
T4           | 7.5  | tesla     | 580.65.05  | amd64 | pytorch:25.08-py3             | runs    | native  | native

# what is unknown is neither yes nor no
T4           | 7.5  | tesla     | -          | amd64 | tensorflow:24.05-tf2-py3      | caution | -       | unknown
-            | -    | -         | 550.54.15  | amd64 | tensorflow:24.05-tf2-py3      | caution | native  | unknown
"""

# card, capability, brand, driver, architecture, the tag asked about -> the newest tag that runs
NEWEST = """
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | tensorflow:18.01-py2          | 25.02-tf2-py3
RTX 4090     | 8.9  | geforce   | 550.54.15  | amd64 | pytorch:25.03-py3             | 25.07-py3
T4           | 7.5  | tesla     | 470.57.02  | amd64 | tensorflow:24.05-tf2-py3      | 25.02-tf2-py3
T4           | 7.5  | tesla     | 470.57.02  | amd64 | pytorch:24.05-py3             | 25.03-py3
GTX 1080     | 6.1  | geforce   | 470.82.01  | amd64 | tensorflow:24.05-tf2-py3      | 22.12-tf2-py3
GTX 1080     | 6.1  | geforce   | 470.82.01  | amd64 | pytorch:25.03-py3             | 22.12-py3
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | tensorflow:18.01-py2          | 25.02-tf2-py3
GH200        | 9.0  | nvidia    | 550.90.07  | arm64 | pytorch:25.03-py3             | 26.02-py3
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:18.01-py2          | 18.08-py2
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | tensorflow:24.05-tf2-py3      | 18.08-py3
GTX 1050 Ti  | 6.1  | geforce   | 390.12     | amd64 | pytorch:24.05-py3             | 18.08-py3
M60          | 5.2  | tesla     | 535.104.05 | amd64 | tensorflow:24.05-tf2-py3      | 18.11-py3
K80          | 3.7  | tesla     | 470.82.01  | amd64 | tensorflow:24.05-tf2-py3      | -
V100         | 7.0  | tesla     | 535.104.05 | amd64 | tensorflow:20.01-tf1-py3      | 24.12-tf2-py3
RTX 5090     | 12.0 | geforce   | 570.86.10  | amd64 | pytorch:24.12-py3             | 25.07-py3
H100         | 9.0  | nvidia    | 610.43.02  | amd64 | pytorch:25.03-py3             | 26.09-py3
V100         | 7.0  | tesla     | 590.48.01  | amd64 | tensorflow:24.05-tf2-py3      | -
V100         | 7.0  | tesla     | -          | amd64 | tensorflow:24.05-tf2-py3      | 24.12-tf2-py3
GTX 1070     | 6.1  | geforce   | 582.66     | amd64 | pytorch:26.09-py3             | 24.12-py3
A100         | 8.0  | nvidia    | 570.124.06 | amd64 | pytorch:25.03-py3             | 26.09-py3
RTX 5090     | 12.0 | geforce   | 550.54.15  | amd64 | pytorch:24.12-py3             | -
RTX 4090     | 8.9  | geforce   | 470.82.01  | amd64 | pytorch:24.12-py3             | -
RTX 2080     | 7.5  | geforce   | 410.48     | amd64 | tensorflow:18.01-py2          | 19.02-py2
T4           | 7.5  | tesla     | 470.57.02  | amd64 | tensorflow:18.01-py2          | 25.02-tf2-py3
GB10         | 12.1 | -         | 580.159.03 | arm64 | pytorch:25.10-py3             | 26.09-py3
Thor         | 11.0 | -         | 580.00     | arm64 | pytorch:25.11-py3             | 26.09-py3
# 25.01 and 25.02 have kernels and PTX for 12.0 only; what 24.12 has is PTX for 9.0, which is compiled
Thor         | 11.0 | -         | 580.95.05  | arm64 | tensorflow:25.02-tf2-py3      | 24.12-tf2-py3
"""


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def host_of(row: list[str]) -> HostFacts:
    name, capability, brand, driver, architecture = (None if cell == "-" else cell for cell in row[:5])
    return HostFacts(architecture=architecture or "", driver=driver, gpus=(Gpu(capability, name, brand),))


def facts_of(name: str, architecture: str) -> ImageFacts:
    facts = from_catalog(ImageRef.parse(name), architecture)
    assert facts is not None
    return facts


def test_the_table_has_what_the_issue_wants_of_it() -> None:
    assert len(rows(TABLE)) >= 60
    assert len({tuple(row[:6]) for row in rows(TABLE)}) == len(rows(TABLE))


@pytest.mark.parametrize("row", rows(TABLE), ids=" ".join)
def test_a_host_and_an_image_give_the_documented_verdict(row: list[str]) -> None:
    verdict = judge_host(facts_of(row[5], row[4]), host_of(row))
    assert [verdict.verdict, verdict.mode or "-", verdict.reasons[0].rule] == row[6:9]


@pytest.mark.parametrize("row", rows(TABLE), ids=" ".join)
def test_every_number_that_decides_has_a_source(row: list[str]) -> None:
    decisive = judge_host(facts_of(row[5], row[4]), host_of(row)).reasons[0]
    assert decisive.rule == "unknown" or (decisive.found and decisive.needed) or decisive.rule == "igpu"
    assert decisive.source or decisive.rule == "unknown"
    assert not decisive.text.endswith(".")


@pytest.mark.parametrize("row", rows(NEWEST), ids=" ".join)
def test_the_newest_tag_that_runs_is_named(row: list[str]) -> None:
    framework, _, tag = row[5].partition(":")

    def look(one: str) -> ImageFacts:
        return facts_of(f"{framework}:{one}", row[4])

    named = newest(tag, releases.tags(framework), look, host_of(row))
    assert (named or "-") == row[6]
