"""Which task is for which topic."""

from collections.abc import Iterator

from bide.errors import ConfigError
from bide.queue.tasks.definition import Definition
from bide.queue.topic_rules import TopicRules


class Tasks:
    """The tasks of a queue and its twin, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Definition] = {}
        self.attempts: dict[str, int] = {}  # by topic, so that a message sent by its topic gets what the task says
        self.rules: TopicRules = TopicRules()
        self.keeps: dict[str, int] = {}  # by topic, how long results are kept, in milliseconds

    def add(self, task: Definition) -> Definition:
        for topic in task.topics:
            other = self._by_topic.get(topic)
            if other is not None and not task.place.is_anew(other.place):
                raise ConfigError(
                    f"The topic {topic} is for {other.place} already, and {task.place} asks for it "
                    "too. Give each task a topic of its own."
                )
        for topic in task.topics:
            self._by_topic[topic] = task
            self.attempts[topic] = task.max_attempts
            self.rules.of_task(topic, task.rule)
            if task.keep is not None:
                self.keeps[topic] = task.keep
            else:
                self.keeps.pop(topic, None)
        return task

    def keeps_nothing(self, topic: str) -> bool:
        """Whether this queue itself says that what the topic's task returns is not kept."""
        return topic in self._by_topic and topic not in self.keeps

    def get(self, topic: str) -> Definition | None:
        return self._by_topic.get(topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_topic)
