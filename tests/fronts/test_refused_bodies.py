"""Requests that are refused while their client still sends: it reads why, though it reads late."""

import socket

from tests.harness import process

LENGTH = 6 * 1024 * 1024
"""Bytes of a body that no front reads away, and no kernel's buffers hold."""


def test_a_client_that_sends_it_all_before_it_reads_has_the_answer(front: str) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n\r\n".encode()
    with process(None, "--front", front) as served, served.socket() as client:
        client.sendall(head + bytes(LENGTH))
        answer = b""
        while b"Content-Type must be application/json" not in answer:
            piece = client.recv(65_536)
            assert piece, answer
            answer += piece
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert b"connection: close" in answer.lower()


def test_a_client_that_has_no_more_to_say_ends_nothing_but_its_connection(front: str) -> None:
    # Ten times, for it is a matter of who comes first: the end of the client, or the response.
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n\r\n".encode()
    with process(None, "--front", front) as served:
        for _ in range(10):
            with served.socket() as client:
                client.sendall(head)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65_536):
                    pass
        assert " ERROR " not in served.stderr
