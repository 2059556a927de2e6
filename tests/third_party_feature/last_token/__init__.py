"""A feature as another package adds it to transduce: predicting the last token of a text."""

from transduce.features import Feature

FEATURE = Feature(
    models={"window": "last_token.model:WindowModel"},
    model_settings={"window": "last_token.model:WindowConfig"},
    tasks={"last_token": "last_token.task:LastToken"},
    task_settings={"last_token": "last_token.task:LastTokenConfig"},
    evaluations={"last_token": "last_token.task:evaluate"},
    uses={"last_token": "use it with: transduce complete"},
    commands={"complete": "last_token.command:complete"},
)
