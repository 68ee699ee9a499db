"""Models: the catalogue, the choice of one, and the providers that stream answers.

`catalogue` lists the models and chooses one, `providers` finds the provider of a model. `api_provider` is the base of the three
APIs `anthropic_api`, `openai_chat` and `openai_responses`, which share `http_client`. `parrot` is the offline model, and has the
script language that it and the fake servers of `serai.testing.models` play.
"""
