"""HTTP server: many clients share the models on one device. Needs the extra `transduce[serve]`.

No request can stop the others. All work that a request causes has a cost that is known before it starts, and runs in
one of three places:

- Searches, and what language models do, run in the queues of the scheduler (`scheduler.py`), step by step, and requests
  of different sizes share the time. This includes what follows a search: searching again for text that
  an output lacks, aligning, estimating confidence. The cost of a translation is the number of output tokens that all
  its searches may need (`output_tokens`); text that must occur in an output counts.
- Documents are read and written in processes of their own (`document_process.py`), which are ended at their deadline.
  Their memory and their priority are lower than the server's, and they do not take Python's lock from its threads.
- Everything else runs on the threads of `workers.py`, each of which does one thing at a time: parsing of large bodies
  and of HTML, detecting languages, splitting texts into jobs, joining their outputs, inspecting. The cost
  is the number of characters or bytes; it decides on the thread, so that small work does not wait for large work.

Nothing of that runs on the event loop. A request that is larger than its limit (`limits.py`) is refused before it
costs anything. It ends at its deadline, or when the client disconnects: the middleware then cancels its task, which
drops its jobs and sets the deadline (`transduce.deadline`) that loops over its text check.

/health fails if a step of the scheduler or a piece of work takes much longer than it may. SIGTERM lets the requests
finish for `server.SHUTDOWN_SECONDS`; the operating system ends a process that is still there some seconds later, and at
once after a second signal.
"""
