from serai.app.services.default_groups import default_groups as default_groups
from serai.app.services.guest_services import Bus as Bus
from serai.app.services.router import AppServices as AppServices
from serai.app.services.router import NoArguments as NoArguments
from serai.app.services.router import Operation as Operation
from serai.app.services.router import ServiceGrants as ServiceGrants
from serai.app.services.router import ServiceGroup as ServiceGroup
from serai.app.services.router import service_grants as service_grants
