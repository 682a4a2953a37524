"""BLAS has one thread inside the context, whichever thread enters and whatever limit was set before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_info, threadpool_limits

from gdm_dask.system.blas import single_threaded_blas


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_whoever_is_left_without_threads_of_blas_stays_so() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert 2 in before
        first, second = single_threaded_blas(), single_threaded_blas()
        first.__enter__()
        second.__enter__()
        assert set(blas_threads()) == {1}
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


def test_any_thread_can_take_the_threads_of_blas_away() -> None:
    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as other:
        before = blas_threads()
        with single_threaded_blas():
            assert set(blas_threads()) == {1}

        def inside() -> list[int]:
            with single_threaded_blas():
                return blas_threads()

        assert set(other.submit(inside).result()) == {1}
        assert blas_threads() == before


def test_the_last_thread_to_leave_gives_them_back() -> None:
    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as other:
        before, context = blas_threads(), single_threaded_blas()
        with single_threaded_blas():
            other.submit(context.__enter__).result()
        assert set(blas_threads()) == {1}
        other.submit(context.__exit__, None, None, None).result()
        assert blas_threads() == before
