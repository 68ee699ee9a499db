"""The app: host, agent, policy, store, recorder and surface, assembled.

`app` has `App`, `assembly` opens its parts, `pipeline` is the path of every call and every approval. `agent_tools` gives guests'
tools and interceptors to an agent, `surfaces` connects surfaces with approvals and guests, `services` is what guests may request.
`config` merges settings and says where each value comes from, `settings_writer` changes the person's files, `doctor` has the
checks of `serai doctor`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
