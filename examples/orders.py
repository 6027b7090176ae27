# orders.py
from msgspec import Struct

from mcpd import Context, Server, ToolError

server = Server("orders")
placed: list[str] = []


class Delivery(Struct):
    """Where it goes."""

    street: str
    express: bool = False


@server.tool
async def order(article: str, ctx: Context) -> str:
    """Order an article."""
    answer = await ctx.elicit(f"Where should {article} go?", Delivery)
    if answer.action != "accept":
        raise ToolError(f"Not ordered: the user chose to {answer.action}")
    placed.append(article)
    return f"{article} goes to {answer.content.street}"
