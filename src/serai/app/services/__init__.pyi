from serai.app.services.bus import Bus as Bus
from serai.app.services.grants import Grants as Grants
from serai.app.services.grants import grants_of as grants_of
from serai.app.services.group import Group as Group
from serai.app.services.group import NoArguments as NoArguments
from serai.app.services.group import Operation as Operation
from serai.app.services.router import AppServices as AppServices
from serai.app.services.usual import usual as usual
