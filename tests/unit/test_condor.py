from classad2 import ClassAd

from arc_refinery.runs.condor import as_idle, matches

JOB = """[
    RequestCpus = 4; RequestMemory = 8000; RequestDisk = 2000000; RequestGPUs = 1; GPUsMinMemory = 20000;
    RequireGPUs = GlobalMemoryMb >= GPUsMinMemory;
    Requirements = TARGET.Cpus >= RequestCpus && TARGET.Memory >= RequestMemory && TARGET.Disk >= RequestDisk
        && countMatches(MY.RequireGPUs, TARGET.AvailableGPUs) >= RequestGPUs;
]"""

# All of it is taken: what is left, and what there is in all.
BUSY = """[
    Cpus = 0; Memory = 100; Disk = 5000; GPUs = 0; AvailableGPUs = {};
    TotalSlotCpus = 8; TotalSlotMemory = 16000; TotalSlotDisk = 4000000; TotalSlotGPUs = 1;
    GPUs_GPU_1 = [Id = "GPU-1"; GlobalMemoryMb = 24220];
]"""


def test_a_busy_machine_matches_once_it_is_empty():
    assert not matches(ClassAd(JOB), ClassAd(BUSY))
    assert matches(ClassAd(JOB), as_idle(ClassAd(BUSY)))


def test_an_empty_machine_that_is_too_small_does_not_match():
    for least in ("RequestCpus = 9", "RequestMemory = 16001", "RequestDisk = 4000001", "RequestGPUs = 2"):
        job = ClassAd(JOB)
        name, _, value = least.partition(" = ")
        job[name] = int(value)
        assert not matches(job, as_idle(ClassAd(BUSY))), least
    job = ClassAd(JOB)
    job["GPUsMinMemory"] = 24221
    assert not matches(job, as_idle(ClassAd(BUSY)))


def test_a_condition_that_cannot_be_evaluated_is_no_match():
    job = ClassAd("[Requirements = TARGET.NoSuchAttribute >= 1]")
    assert not matches(job, as_idle(ClassAd(BUSY)))
