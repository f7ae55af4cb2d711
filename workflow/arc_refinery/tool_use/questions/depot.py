"""Generated facts to look up with `search`, and questions that take one to three look-ups.

    Box 4172 is in room 318.
    Room 318 is in building 27. Greta keeps it.
    Building 27 is in Oslo.

"In which town is box 4172?" takes three: each result names what to look up next.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.questions.generator import NAMES, QuestionSplit, split_of

TOWNS = "Athens Bergen Bremen Cork Dover Gent Graz Kiel Lille Lyon Malmo Oslo Porto Riga Turin Ulm".split()  # noqa: SIM905
_SEED = 0  # seed of the depot that corpus and questions of an experiment share


class Passage(NamedTuple):
    title: str
    text: str


class LookUp(NamedTuple):
    query: str
    fact: str  # to be found by it


@dataclass(frozen=True, slots=True)
class DepotQuestion:
    text: str
    answer: str
    look_ups: tuple[LookUp, ...]
    choices: tuple[str, ...]  # what an answer to such a question may be


@dataclass(frozen=True, slots=True)
class Depot:
    """Places of things, by number: boxes have four digits, rooms three, buildings two."""

    room_of: dict[int, int]
    building_of: dict[int, int]
    keeper_of: dict[int, str]  # keeper of each room
    town_of: dict[int, str]

    def passages(self) -> Iterator[Passage]:
        for box in self.room_of:
            yield Passage(f"Box {box}", self._box_text(box))
        for room in self.building_of:
            yield Passage(f"Room {room}", f"{self._room_text(room)} {self.keeper_of[room]} keeps it.")
        for building in self.town_of:
            yield Passage(f"Building {building}", self._building_text(building))

    def question(self, box: int, level: int, about_keeper: bool) -> DepotQuestion:
        """Return a question that takes `level` look-ups; at level 2 there are two of them about a box."""
        room = self.room_of[box]
        building = self.building_of[room]
        first, second = LookUp(f"box {box}", self._box_text(box)), LookUp(f"room {room}", self._room_text(room))
        if level == 1:
            return DepotQuestion(f"In which room is box {box}?", f"{room}", (first,), _texts(self.building_of))
        if level == 3:
            third = LookUp(f"building {building}", self._building_text(building))
            town, towns = self.town_of[building], tuple(sorted(set(self.town_of.values())))
            return DepotQuestion(f"In which town is box {box}?", town, (first, second, third), towns)
        if about_keeper:
            keeper, names = self.keeper_of[room], tuple(sorted(set(self.keeper_of.values())))
            second = LookUp(second.query, f"{keeper} keeps it.")
            return DepotQuestion(f"Who keeps the room of box {box}?", keeper, (first, second), names)
        return DepotQuestion(f"In which building is box {box}?", f"{building}", (first, second), _texts(self.town_of))

    def _box_text(self, box: int) -> str:
        return f"Box {box} is in room {self.room_of[box]}."

    def _room_text(self, room: int) -> str:
        return f"Room {room} is in building {self.building_of[room]}."

    def _building_text(self, building: int) -> str:
        return f"Building {building} is in {self.town_of[building]}."


def make_depot(rng: random.Random, n_boxes: int, n_rooms: int, n_buildings: int) -> Depot:
    buildings, rooms = rng.sample(range(10, 100), n_buildings), rng.sample(range(100, 1000), n_rooms)
    return Depot(
        {box: rng.choice(rooms) for box in rng.sample(range(1000, 10000), n_boxes)},
        {room: rng.choice(buildings) for room in rooms},
        {room: rng.choice(NAMES) for room in rooms},
        {building: rng.choice(TOWNS) for building in buildings},
    )


@cache
def depot() -> Depot:
    """Return the depot of the tool's corpus `generator` and of the generator's questions in the form `text`."""
    return make_depot(random.Random(stream_seed("depot", _SEED)), 4000, 200, 40)


def depot_row(level: int, split: QuestionSplit, seed: int, index: int) -> dict[str, str]:
    """Return a row with `question` and `answer`. Boxes of held-out questions are in no question to train on."""
    rng = random.Random(stream_seed(seed, "depot", level, split, index))
    boxes = list(depot().room_of)
    while True:
        box = rng.choice(boxes)
        if split_of(f"box {box}") == split:
            question = depot().question(box, level, rng.random() < 0.5)
            return {"question": question.text, "answer": question.answer}


def _texts(numbers: dict[int, str] | dict[int, int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))
