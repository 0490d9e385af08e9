"""Errors of requests, in the shape that the clients of each API expect."""

from starlette.responses import JSONResponse

# Status -> (type of OpenAI, error_type of text-embeddings-inference)
_TYPES = {
    400: ("invalid_request_error", "validation"),
    401: ("authentication_error", "validation"),
    403: ("permission_error", "validation"),
    404: ("invalid_request_error", "validation"),
    405: ("invalid_request_error", "validation"),
    408: ("timeout_error", "overloaded"),
    413: ("invalid_request_error", "validation"),
    421: ("invalid_request_error", "validation"),
    422: ("invalid_request_error", "tokenizer"),
    424: ("invalid_request_error", "backend"),
    429: ("rate_limit_error", "overloaded"),
    500: ("server_error", "backend"),
    503: ("server_error", "overloaded"),
}


class RequestError(Exception):
    """A request that is refused.

    Args:
        status: the HTTP status.
        message: the rule, what was received, and the fix.
        code: a name for programs, such as "model_not_found".
        param: the field of the request that is wrong.
        headers: further headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.headers = status, message, code, param, headers


def error_response(path: str, error: RequestError) -> JSONResponse:
    """The response to a request that is refused: Cohere's, OpenAI's or that of text-embeddings-inference, by path."""
    of_openai, of_tei = _TYPES.get(error.status, _TYPES[500])
    if path.endswith("/rerank") and path.startswith("/v"):
        content = {"message": error.message}
    elif path.startswith("/v1/"):
        content = {
            "error": {"message": error.message, "type": of_openai, "param": error.param, "code": error.code},
        }
    else:
        content = {"error": error.message, "error_type": of_tei}
    return JSONResponse(content, error.status, error.headers)
