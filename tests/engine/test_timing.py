"""Step times count steady decoding only."""

from flare.engine.timing import StepTimes


def test_periods_pair_with_programs_and_skip_interruptions():
    times = StepTimes()
    assert times.period_ms == times.program_ms == 0.0
    now = 0.0
    for index in range(10):
        times.submitted(True, now)
        times.completed(True, 900.0 + index)
        now += 0.001
    assert abs(times.period_ms - 1.0) < 1e-9
    assert times.program_ms == 0.904  # nine periods, the first nine programs
    times.submitted(False, now)  # a prefill chunk of a second
    times.completed(False, 1e6)
    times.submitted(True, now + 1.0)
    times.completed(True, 900.0)
    times.idle()
    times.submitted(True, now + 60.0)
    assert abs(times.period_ms - 1.0) < 1e-9
