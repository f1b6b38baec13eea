"""`python -m tests.support.impatient_server`: the web server, whose connections end sooner: nobody waits so long."""

from server import serve

HEAD_WITHIN_S = SILENT_S = 1.0
UNTAKEN_S = 1.5
CHECKED_EVERY_S = 0.1

if __name__ == "__main__":
    serve.HEAD_WITHIN_S, serve.SILENT_S = HEAD_WITHIN_S, SILENT_S
    serve.UNTAKEN_S, serve.CHECKED_EVERY_S = UNTAKEN_S, CHECKED_EVERY_S
    serve.main()
