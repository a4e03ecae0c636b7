"""A small stock ledger: what lies in a shop, what came in, and what was sold."""

from dataclasses import dataclass, field


@dataclass
class Item:
    """One article of the shop."""

    name: str
    price: float
    quantity: int = 0

    def total(self) -> float:
        return self.price * self.quantity


@dataclass
class Inventory:
    """All articles by name, and a log of every movement."""

    items: dict[str, Item] = field(default_factory=dict)
    log: list[tuple[str, str, int]] = field(default_factory=list)

    def add_item(self, name: str, price: float, quantity: int = 0) -> None:
        if name in self.items:
            raise ValueError(f"item {name} already exists")
        self.items[name] = Item(name, price, quantity)
        self.log.append(("add", name, quantity))

    def remove_item(self, name: str) -> Item:
        if name not in self.items:
            raise KeyError(f"item {name} does not exist")
        item = self.items.pop(name)
        self.log.append(("remove", name, item.quantity))
        return item

    def receive(self, name: str, quantity: int) -> Item:
        if quantity <= 0:
            raise ValueError("quantity must be positive")
        item = self.items[name]
        item.quantity += quantity
        self.log.append(("receive", name, quantity))
        return item

    def sell(self, name: str, quantity: int) -> Item:
        if quantity <= 0:
            raise ValueError("quantity must be positive")
        item = self.items[name]
        if item.quantity < quantity:
            raise ValueError(f"only {item.quantity} of {name} left")
        item.quantity -= quantity
        self.log.append(("sell", name, quantity))
        return item

    def total(self) -> float:
        return sum(item.total() for item in self.items.values())

    def missing(self) -> list[Item]:
        return [item for item in self.items.values() if item.quantity == 0]


def main() -> None:
    inventory = Inventory()
    inventory.add_item("pencil", 0.5, quantity=100)
    inventory.add_item("notebook", 2.5, quantity=40)
    inventory.receive("pencil", 50)
    inventory.sell("notebook", 40)
    for item in inventory.missing():
        print(f"{item.name} is sold out")
    print(f"total: {inventory.total():.2f}")


if __name__ == "__main__":
    main()
